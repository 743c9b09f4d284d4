-- Delete the contributions of published HATs.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, users in a chunk, then for each HAT: slot, cell, the least clock (ms UTC) that closes it
-- A partition whose clock went back (its Redis was restored) keeps them: it is folding them again.
local prefix, clock = ARGV[1], tonumber(redis.call('HGET', KEYS[1], 'clock') or '-1')
for i = 3, #ARGV, 3 do
  local slot, cell = ARGV[i], ARGV[i + 1]
  if clock >= tonumber(ARGV[i + 2]) then
    local users = tonumber(redis.call('HGET', prefix .. 'hats:' .. slot, cell) or '0')
    for chunk = 0, math.ceil(users / tonumber(ARGV[2])) - 1 do
      redis.call('DEL', prefix .. 'c:' .. slot .. '/' .. cell .. '/' .. chunk)
    end
    redis.call('HDEL', prefix .. 'hats:' .. slot, cell)
    if redis.call('EXISTS', prefix .. 'hats:' .. slot) == 0 then redis.call('HDEL', prefix .. 'slots', slot) end
  end
end
return 'OK'
