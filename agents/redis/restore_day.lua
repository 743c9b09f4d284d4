-- Put back the summary of a sealed day of a policy, in place of whatever this Redis has of it.    [decisions/0028]
-- KEYS  1 ledger (of one domain and date), 2 levels (of one policy too), 3 total, 4 dates, 5 last dates, 6 sealed
-- ARGV  1 policy name, 2 date, 3 what its part of the day costs (1e-9), 4 the day's number, 5 6 the limits of a day and of
--       all days (1e-9; '' for none), 7 through which date the policy is sealed, 8 how many fields of the ledger follow,
--       then those with their values, then those of the levels
local name, fields = ARGV[1], tonumber(ARGV[8])
-- Another worker has put all of them back, and what answers have reserved since may stand in this day by now.
if (get(KEYS[6], name) or '') >= ARGV[7] then return written('OK') end
for i = 9, 8 + 2 * fields, 2 do set(KEYS[1], ARGV[i], ARGV[i + 1]) end
for level in pairs(fields_of(KEYS[2])) do set(KEYS[2], level, false) end
for i = 9 + 2 * fields, #ARGV, 2 do set(KEYS[2], ARGV[i], ARGV[i + 1]) end
settle(KEYS[1], KEYS[3], name, amount(ARGV[3], KEYS[1]))
if tonumber(ARGV[4]) > number(KEYS[1], 'sequence') then store(KEYS[1], 'sequence', tonumber(ARGV[4])) end
lower(KEYS[1], ARGV[5])
lower(KEYS[3], ARGV[6])
join(KEYS[4], ARGV[2])
later(KEYS[5], name, ARGV[2])
return written('OK')
