-- Delete what was kept for queries that are answered.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, then for each HAT: slot, cell
for i = 2, #ARGV, 2 do
  local key = ARGV[1] .. 'k:' .. ARGV[i]
  redis.call('HDEL', key, ARGV[i + 1])
  if redis.call('EXISTS', key) == 0 then redis.call('HDEL', ARGV[1] .. 'kept', ARGV[i]) end
end
return 'OK'
