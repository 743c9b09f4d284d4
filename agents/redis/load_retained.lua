-- Read the retained contributions of some cells in the slots of a query's period, and the gap of this partition.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, the least watermark (ms UTC) that closes the last slot, number of slots, the slots, then the cells
-- Returns nil if the watermark is missing or too small, or one of these HATs is still open; else {complete_from or '',
-- lost_from or '', for each slot whether any cell has data, for each cell: its retained contributions by slot, or nil}
local prefix, number = ARGV[1], tonumber(ARGV[3])
local state = redis.call('HMGET', KEYS[1], 'clock', 'complete_from', 'lost_from')
if tonumber(state[1] or '-1') < tonumber(ARGV[2]) then return nil end
local answer, data = {state[2] or '', state[3] or ''}, {}
for i = 4, 3 + number do
  data[#data + 1] = redis.call('EXISTS', prefix .. 'k:' .. ARGV[i], prefix .. 'hats:' .. ARGV[i])
end
answer[3] = data
for c = 4 + number, #ARGV do
  local by_slot = {}
  for i = 4, 3 + number do
    if redis.call('HEXISTS', prefix .. 'hats:' .. ARGV[i], ARGV[c]) == 1 then return nil end
    by_slot[#by_slot + 1] = redis.call('HGET', prefix .. 'k:' .. ARGV[i], ARGV[c])
  end
  answer[#answer + 1] = by_slot
end
return answer
