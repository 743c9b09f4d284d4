-- Raise the marks of a policy's slot progress; a mark never decreases.    [decisions/0007]
-- KEYS  1 progress, 2 recovery; ARGV  1 the recovery's token, then field and value (ms UTC) of each mark
-- Returns "OK", or "unrecovered" and writes nothing, since the records behind the marks may be lost.
local recovery = redis.call('HMGET', KEYS[2], 'run_id', 'token')
if recovery[2] ~= ARGV[1] or recovery[1] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') then
  return 'unrecovered'
end
for i = 2, #ARGV, 2 do
  if tonumber(ARGV[i + 1]) > get_number(KEYS[1], ARGV[i]) then set(KEYS[1], ARGV[i], ARGV[i + 1]) end
end
return write_all('OK')
