-- Put a user key back that hatcast made, unless another worker was faster.
-- KEYS[1] user key; ARGV the fingerprint that was found ('' for none), fingerprint and key to store
if (redis.call('HGET', KEYS[1], 'fingerprint') or '') ~= ARGV[1] then return 'OK' end
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[2], 'key', ARGV[3])
return 'OK'
