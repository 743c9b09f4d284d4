-- Open a partition: only the worker that opened it last may write it.    [decisions/0001]
-- KEYS[1]  {name:p}:state
-- ARGV     the log's start, the worker's owner token, the fingerprint of its user key ('' for any), the key itself if
--          hatcast generated it, and the next nonce
-- Returns the offset to read from and ''; or '' and the fingerprint of the user key of the stored state, if that is
-- another one: then nothing was written.
local folded = redis.call('HGET', KEYS[1], 'user_key')
if ARGV[3] ~= '' and folded ~= ARGV[3] then
  if folded and redis.call('HEXISTS', KEYS[1], 'clock') == 1 then return {'', folded} end
  redis.call('HSET', KEYS[1], 'user_key', ARGV[3])
  if ARGV[4] == '' then redis.call('HDEL', KEYS[1], 'made_key') else redis.call('HSET', KEYS[1], 'made_key', ARGV[4]) end
end
redis.call('HSETNX', KEYS[1], 'offset', ARGV[1])
redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'nonce', ARGV[5])
return {redis.call('HGET', KEYS[1], 'offset'), ''}
