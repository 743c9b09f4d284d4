-- Read the contributions of final HATs together with the watermark that makes them final.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, users in a chunk, then for each HAT: slot, cell, the least watermark (ms UTC) that closes it
-- Returns for each HAT its chunks; or nil if the watermark is missing or too small for one of them.
local watermark = tonumber(redis.call('HGET', KEYS[1], 'clock') or '-1')
local found = {}
for i = 3, #ARGV, 3 do
  if watermark < tonumber(ARGV[i + 2]) then return nil end
  local users = tonumber(redis.call('HGET', ARGV[1] .. 'hats:' .. ARGV[i], ARGV[i + 1]) or '0')
  local chunks = {}
  for chunk = 0, math.ceil(users / tonumber(ARGV[2])) - 1 do
    chunks[#chunks + 1] = redis.call('GET', ARGV[1] .. 'c:' .. ARGV[i] .. '/' .. ARGV[i + 1] .. '/' .. chunk)
  end
  found[#found + 1] = chunks
end
return found
