-- After staging.lua and index.lua.
-- Delete the contributions of published HATs of one slot, and retain the parts that queries over days will read.
-- KEYS  1 {name:p}:state, 2 the slot's index; to retain also 3 slots with retained contributions, 4 those of the slot;
--       then the chunks of each HAT
-- ARGV  1 nonce of the index from which these keys follow, 2 the next one, 3 slot, 4 the least watermark (ms UTC) that
--       closes it, 5 bytes of a pseudonym ('' to retain nothing), then cell and number of chunks of each HAT
-- Returns "OK", or "moved" if the index has changed: then nothing was written. A partition whose watermark went back
-- (its Redis was restored) deletes nothing: it folds these records again.
if get(KEYS[1], 'nonce') ~= ARGV[1] then return write_all('moved') end
if parse_integer(get(KEYS[1], 'clock') or '-1', KEYS[1]) < tonumber(ARGV[4]) then return write_all('OK') end
local slot, pseudonym = ARGV[3], tonumber(ARGV[5])
local ends, cells = check_slot(slot, KEYS[2])
local retained_cells = pseudonym and check_retained(slot, KEYS[3], KEYS[4])

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

local at = pseudonym and 4 or 2
for i = 6, #ARGV, 2 do
  local cell, retained = ARGV[i], {}
  for _ = 1, tonumber(ARGV[i + 1]) do
    at = at + 1
    if redis.call('EXISTS', KEYS[at]) == 0 then
      reject('damaged', KEYS[2])
    elseif pseudonym then
      retained[#retained + 1] = strip(get_string(KEYS[at]) or '', KEYS[at])
    end
    remove(KEYS[at])
  end
  if pseudonym then
    local value = table.concat(retained)
    if not get(KEYS[4], cell) then retained_cells = retained_cells + 1 end
    set(KEYS[4], cell, value .. string.sub(redis.sha1hex(KEYS[4] .. '/' .. cell .. value), 1, 8))
  end
  set(KEYS[2], cell, false)
  cells = cells - 1
end
if pseudonym then set_retained(slot, KEYS[3], retained_cells) end
set(KEYS[1], 'slot:' .. slot, cells > 0 and ends .. ' ' .. text(cells))
set(KEYS[1], 'nonce', ARGV[2])
return write_all('OK', true)
