-- After staging.lua and index.lua.
-- Read the retained contributions of some cells in the slots of a query's period, and the gap of this partition.
-- KEYS  1 {name:p}:state, 2 slots with retained contributions, then for each slot those and its index
-- ARGV  the least watermark (ms UTC) that closes the last slot, number of slots, the slots, then the cells
-- Returns nil if the watermark is missing or too small, or one of these HATs is still open; else {complete_from or '',
-- lost_from or '', for each slot whether any cell has data, for each cell: its retained contributions by slot, or nil}
local number, is_open = tonumber(ARGV[2]), false
if parse_integer(get(KEYS[1], 'clock') or '-1', KEYS[1]) < tonumber(ARGV[1]) then return write_all(false) end
local answer, data = {get(KEYS[1], 'complete_from') or '', get(KEYS[1], 'lost_from') or ''}, {}
for i = 1, number do
  local _, cells = check_slot(ARGV[2 + i], KEYS[2 + 2 * i])
  data[i] = check_retained(ARGV[2 + i], KEYS[2], KEYS[1 + 2 * i]) + cells
end
answer[3] = data
for c = 3 + number, #ARGV do
  local by_slot = {}
  for i = 1, number do
    if get(KEYS[2 + 2 * i], ARGV[c]) then is_open = true end
    by_slot[i] = get(KEYS[1 + 2 * i], ARGV[c])
  end
  answer[#answer + 1] = by_slot
end
return write_all(not is_open and answer)
