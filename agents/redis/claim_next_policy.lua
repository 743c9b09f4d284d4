-- Store a policy's next policy from a date on: permanently, and only if the replaced one has not released that date.
-- KEYS  1 successors, 2 last dates                     (of the domain)
-- ARGV  1 the policy that is replaced, 2 the date, 3 the next policy as stored: date, space, name
-- Returns {"kept", the stored next policy}, or {"begun", the last date that the replaced policy has released}
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if stored then return {'kept', stored} end
local last = redis.call('HGET', KEYS[2], ARGV[1])
if last and last >= ARGV[2] then return {'begun', last} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return {'kept', ARGV[3]}
