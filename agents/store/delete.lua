-- Delete the contributions of published HATs; keep of them what queries over days will read.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, users in a chunk, bytes of a pseudonym ('' to keep nothing), then for each HAT: slot, cell, the least
--          clock (ms UTC) that closes it
-- A partition whose clock went back (its Redis was restored) keeps them: it is folding them again.
local prefix, clock = ARGV[1], tonumber(redis.call('HGET', KEYS[1], 'clock') or '-1')
local pseudonym = tonumber(ARGV[3])

-- stream.packing.strip: header, counts, totals, maxima
local function strip(chunk)
  local users, counts, totals, maxima = string.byte(chunk, 2, 5)
  local start = 6 + users * pseudonym
  return string.sub(chunk, 1, 5) .. string.sub(chunk, start, start + users * (counts + totals + maxima) - 1)
end

for i = 4, #ARGV, 3 do
  local slot, cell = ARGV[i], ARGV[i + 1]
  if clock >= tonumber(ARGV[i + 2]) then
    local users, kept = tonumber(redis.call('HGET', prefix .. 'hats:' .. slot, cell) or '0'), {}
    for chunk = 0, math.ceil(users / tonumber(ARGV[2])) - 1 do
      local key = prefix .. 'c:' .. slot .. '/' .. cell .. '/' .. chunk
      if pseudonym then
        local bytes = redis.call('GET', key)
        if bytes then kept[#kept + 1] = strip(bytes) end
      end
      redis.call('DEL', key)
    end
    if #kept > 0 then
      redis.call('HSET', prefix .. 'k:' .. slot, cell, table.concat(kept))
      redis.call('HSET', prefix .. 'kept', slot, redis.call('HGET', prefix .. 'slots', slot))
    end
    redis.call('HDEL', prefix .. 'hats:' .. slot, cell)
    if redis.call('EXISTS', prefix .. 'hats:' .. slot) == 0 then redis.call('HDEL', prefix .. 'slots', slot) end
  end
end
return 'OK'
