-- Restore a generated user key, unless another worker has changed the stored one.
-- KEYS[1] user key; ARGV the fingerprint that was read ('' for none), fingerprint and key to store
if (redis.call('HGET', KEYS[1], 'fingerprint') or '') ~= ARGV[1] then return 'OK' end
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[2], 'key', ARGV[3])
return 'OK'
