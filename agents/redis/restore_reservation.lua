-- Restore the reservation of a query, whose answer was published, on one day of its period.    [decisions/0027]
-- KEYS  1 ledger (of one domain and date), 2 total, 3 dates
-- ARGV  1 date, 2 policy name, 3 query, 4 places, 5 epsilon (1e-9)
restore_places(KEYS[1], KEYS[2], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5])
add_member(KEYS[3], ARGV[1])
return write_all('OK')
