-- Take back what a record of hats.budget tells beyond the releases: this Redis may have lost it.    [decisions/0027]
-- KEYS  1 ledger (of one domain and date), 2 levels (of one policy too), 3 total, 4 successors, 5 dates
-- ARGV  1 policy name, 2 the day's ledger number, 3 cap K, 4 the day's limit (1e-9), 5 the limit of all days (1e-9);
--       6 the policy that this one replaces, 7 this one as its successor; 3 to 7 '' where there is nothing to tell;
--       then for each query over days that has reserved something: its name, places, epsilon (1e-9)
local name = ARGV[1]
-- Readers keep the record with the greatest number: go on above it.
if tonumber(ARGV[2]) > number(KEYS[1], 'sequence') then store(KEYS[1], 'sequence', tonumber(ARGV[2])) end
if ARGV[3] ~= '' and not get(KEYS[1], 'cap:' .. name) then
  set(KEYS[1], 'cap:' .. name, ARGV[3])
  settle(KEYS[1], KEYS[3], name, cost_of_day(KEYS[1], name, levels_in(KEYS[2]), tonumber(ARGV[3])))
end
for i = 8, #ARGV, 3 do
  recall_places(KEYS[1], KEYS[3], name, ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2])
  join(KEYS[5], string.sub(KEYS[1], -10))  -- its date: it may have no release
end
lower(KEYS[1], ARGV[4])
lower(KEYS[3], ARGV[5])
if ARGV[6] ~= '' and not get(KEYS[4], ARGV[6]) then set(KEYS[4], ARGV[6], ARGV[7]) end
return written('OK')
