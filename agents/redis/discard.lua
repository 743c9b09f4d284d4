-- Discard a record that was committed here and never sent, with its charge.    [decisions/0029]
-- KEYS  1 recovery (of the domain), 2 releases, 3 published, 4 seen (of one policy and date), 5 ledger (of the date),
--       6 costs, 7 levels (of the policy too), 8 total (of the domain), 9 progress (of the policy); of a running sum that
--       was drawn also 10 states, 11 states before (of the policy and horizon), 12 horizons (of the policy)
-- ARGV  1 the token of the recovery in progress, 2 policy name, 3 release_id, 4 its record, 5 cell/slot, 6 charge (1e-9),
--       7 fineness of its noise; of such a running sum also 8 the first date of its horizon, 9 its cell
-- Returns {"OK"}, even if the record was sent or is not here; {"ended"} if that recovery is not in progress.
local name, id = ARGV[2], ARGV[3]
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[1] then return {'ended'} end
if get(KEYS[2], id) ~= ARGV[4] or run_read('SISMEMBER', KEYS[3], id) ~= 0 or run_read('SISMEMBER', KEYS[4], id) ~= 0 then
  return write_all({'OK'})
end
set(KEYS[2], id, false)
if ARGV[8] then take_back_state(KEYS[10], KEYS[11], KEYS[12], ARGV[8], ARGV[9], id) end
increase(KEYS[5], 'sequence', 1)  -- hats.budget may have published the ledger with this charge
-- Under `add_remove` a slot is sent after all of it is committed, which is no longer true.
local committed = {}
for field, value in pairs(fields_of(KEYS[9])) do
  local partition = value and string.match(field, '^committed:(%d+)$')
  if partition then committed[partition] = field end
end
for partition, field in pairs(committed) do
  local published = get_number(KEYS[9], 'published:' .. partition)
  if published < get_number(KEYS[9], field) then set_number(KEYS[9], field, published) end
end
local charge, fineness = amount(ARGV[6], KEYS[2]), 'fineness:' .. name .. ':' .. ARGV[7]
if ZERO < charge then
  increase(KEYS[5], 'releases:' .. name, -1)
  if get_number(KEYS[5], fineness) > 0 then increase(KEYS[5], fineness, -1) end
  add_amount(KEYS[5], 'epsilon:' .. name, ZERO - charge)
  unbook(KEYS[6], KEYS[7], ARGV[5], charge)
  set_policy_cost(KEYS[5], KEYS[8], name, cost_of_day(KEYS[5], name, levels_in(KEYS[7]), cap_of(KEYS[5], name)))
end
return write_all({'OK'})
