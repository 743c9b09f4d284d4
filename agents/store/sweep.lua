-- Delete what a partition has folded of the days from a date on: they are another policy's. What was kept for queries
-- goes too: those whose days are not over will never be answered.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, users in a chunk, the date
local prefix, per_chunk, from = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local function delete_chunks(key, users)
  for chunk = 0, math.ceil(tonumber(users) / per_chunk) - 1 do redis.call('DEL', key .. '/' .. chunk) end
end
for _, slot in ipairs(redis.call('HKEYS', prefix .. 'slots')) do
  if slot >= from then
    local cells = redis.call('HGETALL', prefix .. 'hats:' .. slot)
    for i = 1, #cells, 2 do delete_chunks(prefix .. 'c:' .. slot .. '/' .. cells[i], cells[i + 1]) end
    redis.call('DEL', prefix .. 'hats:' .. slot)
    redis.call('HDEL', prefix .. 'slots', slot)
  end
end
local days = redis.call('HGETALL', prefix .. 'days')
for i = 1, #days, 2 do
  if days[i] >= from then
    delete_chunks(prefix .. 'd:' .. days[i], days[i + 1])
    redis.call('HDEL', prefix .. 'days', days[i])
  end
end
for _, slot in ipairs(redis.call('HKEYS', prefix .. 'kept')) do redis.call('DEL', prefix .. 'k:' .. slot) end
redis.call('DEL', prefix .. 'kept')
return 'OK'
