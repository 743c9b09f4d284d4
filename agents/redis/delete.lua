-- Delete the contributions of published HATs, and retain the parts that queries over days will read.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, users in a chunk, bytes of a pseudonym ('' to retain nothing), then for each HAT: slot, cell, the
--          least watermark (ms UTC) that closes it
-- A partition whose watermark went back (its Redis was restored) deletes nothing: it folds these records again.
-- A HAT of which a chunk is missing is damaged; a damaged number of users must not occupy Redis.
local prefix, watermark = ARGV[1], parse_integer(get(KEYS[1], 'clock') or '-1', KEYS[1])
local pseudonym, deleted = tonumber(ARGV[3]), {}

-- hatcast.stream.fold.packing.strip: header, counts, totals, maxima
local function strip(chunk, key)
  local users, counts, totals, maxima = string.byte(chunk, 2, 5)
  local start = maxima and 6 + users * pseudonym
  local stop = maxima and start + users * (counts + totals + maxima) - 1
  if not maxima or #chunk < stop then
    reject('damaged', key)
    return ''
  end
  return string.sub(chunk, 1, 5) .. string.sub(chunk, start, stop)
end

for i = 4, #ARGV, 3 do
  local slot, cell = ARGV[i], ARGV[i + 1]
  if watermark >= tonumber(ARGV[i + 2]) then
    local hats, retained = prefix .. 'hats:' .. slot, {}
    local users = get_number(hats, cell)
    if users < 1 and get(hats, cell) then reject('damaged', hats) end  -- its chunks would stay, and not be retained
    for chunk = 0, math.ceil(users / tonumber(ARGV[2])) - 1 do
      local key = prefix .. 'c:' .. slot .. '/' .. cell .. '/' .. chunk
      local bytes = pseudonym and get_string(key)
      if not bytes and (pseudonym or redis.call('EXISTS', key) == 0) then
        reject('damaged', hats)
        break
      end
      if pseudonym then retained[#retained + 1] = strip(bytes, key) end
      remove(key)
    end
    if #retained > 0 then
      local key, value = prefix .. 'k:' .. slot, table.concat(retained)
      set(key, cell, value .. string.sub(redis.sha1hex(key .. '/' .. cell .. value), 1, 8))
      set(prefix .. 'kept', slot, get(prefix .. 'slots', slot) or reject('damaged', prefix .. 'slots'))
    end
    if get(hats, cell) then
      deleted[slot] = (deleted[slot] or 0) + 1
      set(hats, cell, false)
    end
  end
end
for slot, cells in pairs(deleted) do
  if redis.call('HLEN', prefix .. 'hats:' .. slot) == cells then set(prefix .. 'slots', slot, false) end
end
return write_all('OK')
