-- Restore from a budget record what the release records do not contain and this Redis may have lost. [decisions/0027]
-- KEYS  1 ledger (of one domain and date), 2 levels (of one policy too), 3 total, 4 successors, 5 dates
-- ARGV  1 policy name, 2 the day's ledger number, 3 cap K, 4 the day's limit (1e-9), 5 the limit of all days (1e-9);
--       6 the policy that this one replaces, 7 this one as its next policy; 3 to 7 are '' if the record lacks them;
--       then for each query over days with a reservation: its name, places, epsilon (1e-9)
local name = ARGV[1]
-- Consumers keep the record with the greatest number: continue above it.
if tonumber(ARGV[2]) > get_number(KEYS[1], 'sequence') then set_number(KEYS[1], 'sequence', tonumber(ARGV[2])) end
if ARGV[3] ~= '' and not get(KEYS[1], 'cap:' .. name) then
  set(KEYS[1], 'cap:' .. name, ARGV[3])
  set_policy_cost(KEYS[1], KEYS[3], name, cost_of_day(KEYS[1], name, levels_in(KEYS[2]), tonumber(ARGV[3])))
end
for i = 8, #ARGV, 3 do
  restore_places(KEYS[1], KEYS[3], name, ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2])
  add_member(KEYS[5], string.sub(KEYS[1], -10))  -- the ledger's date, which may have no release
end
lower_limit(KEYS[1], ARGV[4])
lower_limit(KEYS[3], ARGV[5])
if ARGV[6] ~= '' and not get(KEYS[4], ARGV[6]) then set(KEYS[4], ARGV[6], ARGV[7]) end
return write_all('OK')
