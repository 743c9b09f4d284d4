-- Replace a record that was committed here and never sent by the one that was sent.    [decisions/0010]
-- KEYS  1 releases, 2 ledger (of one domain and date), 3 costs, 4 levels (of one policy too), 5 total, 6 horizons (of the
--       policy)
-- ARGV  1 policy name, 2 release_id, 3 cell/slot,
--       4 5 6 record, charge (1e-9) and fineness of the noise, of the stored record; 7 8 9 the same of the sent record;
--       10 first date of its horizon ('' unless it is a running sum): the state here is not that of what was sent
-- Returns 1, or 0 if another record is stored by now: then nothing was written.
local name, place = ARGV[1], ARGV[3]
if get(KEYS[1], ARGV[2]) ~= ARGV[4] then return write_all(0) end
set(KEYS[1], ARGV[2], ARGV[7])
if ARGV[10] ~= '' then close_horizon(KEYS[6], ARGV[10], 'incomplete') end
local here, sent = amount(ARGV[5], KEYS[1]), amount(ARGV[8], KEYS[1])
local function count(charge, fineness, sign)
  if charge == ZERO then return end
  increase(KEYS[2], 'releases:' .. name, sign)
  local field = 'fineness:' .. name .. ':' .. fineness
  if sign > 0 or get_number(KEYS[2], field) > 0 then increase(KEYS[2], field, sign) end
end
count(here, ARGV[6], -1)
count(sent, ARGV[9], 1)
if here ~= sent then
  add_amount(KEYS[2], 'epsilon:' .. name, sent - here)
  if ZERO < here then unbook(KEYS[3], KEYS[4], place, here) end
  if ZERO < sent then book(KEYS[3], KEYS[4], place, sent) end
  set_policy_cost(KEYS[2], KEYS[5], name, cost_of_day(KEYS[2], name, levels_in(KEYS[4]), cap_of(KEYS[2], name)))
end
-- The ledger number stays: with the adopted records, this is the ledger that hats.budget has published.
return write_all(1)
