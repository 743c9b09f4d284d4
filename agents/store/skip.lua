-- Go on behind records that were deleted unread, as the operator has accepted.
-- KEYS[1]  {name:p}:state
-- ARGV     the stored offset, the log's start
if redis.call('HGET', KEYS[1], 'offset') == ARGV[1] then redis.call('HSET', KEYS[1], 'offset', ARGV[2], 'gap', '1') end
return 'OK'
