-- Reserve the cost of a clustering on a date, if the day and all days have room, or find the reservation.
-- KEYS  1 recovery, 2 sealed, 3 successors (of the domain), 4 ledger (of the date), 5 total, 6 dates (of the domain)
-- ARGV  1 policy name, 2 date, 3 query name of the reservation, 4 epsilon (1e-9), 5 the limit of a day (1e-9), 6 the limit
--       of all days ('' for none)
-- Returns {"reserved" or "found", the recovery's token}, or one word, and then nothing was written: "unrecovered",
-- "sealed" (the day is sealed), "replaced" (the day is the next policy's), "exhausted" (there is no room).
local name, date, query = ARGV[1], ARGV[2], ARGV[3]
local recovery = redis.call('HMGET', KEYS[1], 'run_id', 'token')
if not recovery[2] or recovery[1] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') then
  return {'unrecovered'}
end
local places = places_of(KEYS[4], name, query)
if places and places > 0 then return write_all({'found', recovery[2]}) end
local sealed, successor = redis.call('HGET', KEYS[2], name), redis.call('HGET', KEYS[3], name)
if sealed and date <= sealed then return {'sealed'} end
if successor and date >= string.match(successor, '^%S+') then return {'replaced'} end
if not has_room(KEYS[4], KEYS[5], amount(ARGV[4], KEYS[4]), ARGV[5], ARGV[6]) then return write_all({'exhausted'}) end
set_places(KEYS[4], KEYS[5], name, query, 1, ARGV[4])
lower_limit(KEYS[4], ARGV[5])
lower_limit(KEYS[5], ARGV[6])
increase(KEYS[4], 'sequence', 1)
add_member(KEYS[6], date)
return write_all({'reserved', recovery[2]})
