-- Write a hash if it does not exist, and return its contents.
-- KEYS[1] the hash; ARGV its fields and values
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], unpack(ARGV)) end
return redis.call('HGETALL', KEYS[1])
