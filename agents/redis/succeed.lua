-- Let a policy follow another from a date on: once and for ever, and only while the other has released none of it.
-- KEYS  1 successors, 2 last dates                     (of the domain)
-- ARGV  1 the policy that is replaced, 2 the date, 3 the successor as it is kept: date, space, name
-- Returns {"kept", the successor that is kept now}, or {"begun", the last date that the other has released}
local kept = redis.call('HGET', KEYS[1], ARGV[1])
if kept then return {'kept', kept} end
local last = redis.call('HGET', KEYS[2], ARGV[1])
if last and last >= ARGV[2] then return {'begun', last} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return {'kept', ARGV[3]}
