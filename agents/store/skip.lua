-- Go on behind records that were deleted unread, as the operator has accepted.
-- KEYS[1]  {name:p}:state
-- ARGV     the stored offset, the log's start
if redis.call('HGET', KEYS[1], 'offset') == ARGV[1] then
  redis.call('HSET', KEYS[1], 'offset', ARGV[2], 'gap', '1')
  -- Slots that were closed by then are whole. Of several gaps the first one counts.
  local clock = redis.call('HGET', KEYS[1], 'clock')
  if clock and not redis.call('HGET', KEYS[1], 'complete_from') then redis.call('HSETNX', KEYS[1], 'lost_from', clock) end
end
return 'OK'
