-- Put back what a query has reserved on a day that it has read: its answer was published.    [decisions/0027]
-- KEYS  1 ledger (of one domain and date), 2 total, 3 dates
-- ARGV  1 date, 2 policy name, 3 query, 4 places, 5 epsilon (1e-9)
recall_places(KEYS[1], KEYS[2], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5])
join(KEYS[3], ARGV[1])
return written('OK')
