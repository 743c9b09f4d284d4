-- Restore the summary of a policy's sealed day, replacing what this Redis has of it.    [decisions/0028]
-- KEYS  1 ledger (of one domain and date), 2 levels (of one policy too), 3 total, 4 dates, 5 last dates, 6 sealed
-- ARGV  1 policy name, 2 date, 3 cost of its part of the day (1e-9), 4 the day's ledger number, 5 6 the limits of a day
--       and of all days (1e-9; '' for none), 7 the policy's last sealed date, 8 number of ledger fields that follow, then
--       those with their values, then those of the levels
local name, fields = ARGV[1], tonumber(ARGV[8])
-- Another worker has restored all days, and answers may have reserved more on this day since.
if (get(KEYS[6], name) or '') >= ARGV[7] then return write_all('OK') end
for i = 9, 8 + 2 * fields, 2 do set(KEYS[1], ARGV[i], ARGV[i + 1]) end
for level in pairs(fields_of(KEYS[2])) do set(KEYS[2], level, false) end
for i = 9 + 2 * fields, #ARGV, 2 do set(KEYS[2], ARGV[i], ARGV[i + 1]) end
set_policy_cost(KEYS[1], KEYS[3], name, amount(ARGV[3], KEYS[1]))
if tonumber(ARGV[4]) > get_number(KEYS[1], 'sequence') then set_number(KEYS[1], 'sequence', tonumber(ARGV[4])) end
lower_limit(KEYS[1], ARGV[5])
lower_limit(KEYS[3], ARGV[6])
add_member(KEYS[4], ARGV[2])
raise_last_date(KEYS[5], name, ARGV[2])
return write_all('OK')
