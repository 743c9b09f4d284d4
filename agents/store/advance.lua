-- Raise marks of a policy's progress; none goes back.    [decisions/0007]
-- KEYS  1 progress, 2 proof; ARGV  1 the proof's token, then field and value (ms UTC) of each mark
-- Returns "OK", or "unproven": then nothing was written, since what the marks speak of may be lost.
local proof = redis.call('HMGET', KEYS[2], 'run_id', 'token')
if proof[2] ~= ARGV[1] or proof[1] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') then
  return 'unproven'
end
for i = 2, #ARGV, 2 do
  if tonumber(ARGV[i + 1]) > number(KEYS[1], ARGV[i]) then set(KEYS[1], ARGV[i], ARGV[i + 1]) end
end
return written('OK')
