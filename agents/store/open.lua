-- Take a partition: from now on only the one who did so last may write it.    [decisions/0011]
-- KEYS[1]  {name:p}:state
-- ARGV     the log's start, a token of whoever takes it
-- Returns the offset to read from.
redis.call('HSETNX', KEYS[1], 'offset', ARGV[1])
redis.call('HSET', KEYS[1], 'owner', ARGV[2])
return redis.call('HGET', KEYS[1], 'offset')
