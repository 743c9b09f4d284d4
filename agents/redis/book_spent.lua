-- Book the already spent cost of a private list of cells on some days, regardless of the limits.    [decisions/0015]
-- KEYS  1 total, 2 dates, 3 announced (of the domain), then the ledger of each date
-- ARGV  1 policy name, 2 the query name of its reservation, 3 number of places that a user can be in, 4 epsilon of each
--       place (1e-9), 5 the limit of a day (1e-9), 6 the limit of all days ('' for none), 7 '1' once hats.budget has
--       the costs, then the dates
-- Returns the dates on which the cost was not booked yet.
local name, booked = ARGV[1], {}
for i = 4, #KEYS do
  local date = ARGV[i + 4]
  if reserve(KEYS[i], KEYS[1], name, ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], true) == 1 then
    increase(KEYS[i], 'sequence', 1)
    booked[#booked + 1] = date
  end
  add_member(KEYS[2], date)
end
-- If Redis lost a cost after it was announced, it is announced again.
if ARGV[7] == '1' and #booked == 0 then set(KEYS[3], name, '1') end
return write_all(booked)
