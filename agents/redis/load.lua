-- Read the contributions of final HATs together with the watermark that makes them final.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, users in a chunk, then for each HAT: slot, cell, the least watermark (ms UTC) that closes it
-- Returns for each HAT its number of users in the index and its chunks, up to one that is missing, or nothing for a HAT that is not in the index; or nil if the watermark is missing or too small for one of them.
local watermark = tonumber(redis.call('HGET', KEYS[1], 'clock') or '-1')
local found = {}
for i = 3, #ARGV, 3 do
  if watermark < tonumber(ARGV[i + 2]) then return nil end
  local users = redis.call('HGET', ARGV[1] .. 'hats:' .. ARGV[i], ARGV[i + 1])
  local chunks = users and {users} or {}
  for chunk = 0, math.ceil((tonumber(users or '0') or 0) / tonumber(ARGV[2])) - 1 do
    local bytes = redis.call('GET', ARGV[1] .. 'c:' .. ARGV[i] .. '/' .. ARGV[i + 1] .. '/' .. chunk)
    if not bytes then break end  -- the worker refuses the HAT; a damaged number of users must not occupy Redis
    chunks[#chunks + 1] = bytes
  end
  found[#found + 1] = chunks
end
return found
