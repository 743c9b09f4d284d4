-- After staging.lua and index.lua.
-- Read the contributions of final HATs of one slot together with the watermark that makes them final.
-- KEYS  1 {name:p}:state, 2 the slot's index, then chunks
-- ARGV  1 slot, 2 the least watermark (ms UTC) that closes it, then cells
-- Returns the number of users of each cell, from which the keys of the chunks follow, then the chunks; or nil if the
-- watermark is missing or too small.
if parse_integer(get(KEYS[1], 'clock') or '-1', KEYS[1]) < tonumber(ARGV[2]) then return write_all(false) end
check_slot(ARGV[1], KEYS[2])
local found = {}
for i = 3, #ARGV do found[#found + 1] = get(KEYS[2], ARGV[i]) end
for i = 3, #KEYS do found[#found + 1] = redis.call('GET', KEYS[i]) end
return write_all(found)
