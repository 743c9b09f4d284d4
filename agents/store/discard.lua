-- Discard a record that was committed here and never sent, with its charge.    [decisions/0029]
-- KEYS  1 recovery (of the domain), 2 releases, 3 published, 4 seen (of one policy and date), 5 ledger (of the date),
--       6 costs, 7 levels (of the policy too), 8 total (of the domain), 9 progress (of the policy)
-- ARGV  1 the token of the recovery in progress, 2 policy name, 3 release_id, 4 its record, 5 cell/slot, 6 charge (1e-9),
--       7 how fine its noise is
-- Returns {"OK"}, also where this record was sent or is not here; {"ended"} where that recovery is not in progress.
local name, id = ARGV[2], ARGV[3]
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[1] then return {'ended'} end
if get(KEYS[2], id) ~= ARGV[4] or ask('SISMEMBER', KEYS[3], id) ~= 0 or ask('SISMEMBER', KEYS[4], id) ~= 0 then
  return written({'OK'})
end
set(KEYS[2], id, false)
-- Under `add_remove` a slot is sent once all of it is committed: that is not so any more.
local committed = {}
for field, value in pairs(fields_of(KEYS[9])) do
  local partition = value and string.match(field, '^committed:(%d+)$')
  if partition then committed[partition] = field end
end
for partition, field in pairs(committed) do
  local published = number(KEYS[9], 'published:' .. partition)
  if published < number(KEYS[9], field) then store(KEYS[9], field, published) end
end
local charge, fineness = amount(ARGV[6], KEYS[2]), 'fineness:' .. name .. ':' .. ARGV[7]
if ZERO < charge then
  increase(KEYS[5], 'releases:' .. name, -1)
  if number(KEYS[5], fineness) > 0 then increase(KEYS[5], fineness, -1) end
  grow(KEYS[5], 'epsilon:' .. name, ZERO - charge)
  unbook(KEYS[6], KEYS[7], ARGV[5], charge)
  settle(KEYS[5], KEYS[8], name, cost_of_day(KEYS[5], name, levels_in(KEYS[7]), cap_of(KEYS[5], name)))
end
return written({'OK'})
