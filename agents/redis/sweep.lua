-- Delete a partition's contributions from a date on, which are the next policy's, with the journal, which has rows of
-- open slots alone, and all retained contributions: queries whose periods have not ended will never be answered.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, users in a chunk, the date, and the first day or horizon whose users are deleted
local prefix, per_chunk, from, users_from = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
-- Up to the first that is missing: the users after it are in the journal, or their number is damaged.
local function delete_chunks(key, users)
  for chunk = 0, math.ceil(users / per_chunk) - 1 do
    if redis.call('EXISTS', key .. '/' .. chunk) == 0 then return end
    remove(key .. '/' .. chunk)
  end
end
for _, slot in ipairs(redis.call('HKEYS', prefix .. 'slots')) do
  if slot >= from then
    local hats = prefix .. 'hats:' .. slot
    for cell, users in pairs(fields_of(hats)) do
      delete_chunks(prefix .. 'c:' .. slot .. '/' .. cell, parse_integer(users, hats))
    end
    remove(hats)
    set(prefix .. 'slots', slot, false)
  end
end
for _, date in ipairs(redis.call('HKEYS', prefix .. 'days')) do
  if date >= users_from then
    delete_chunks(prefix .. 'd:' .. date, get_number(prefix .. 'days', date))
    set(prefix .. 'days', date, false)
  end
end
for _, slot in ipairs(redis.call('HKEYS', prefix .. 'kept')) do remove(prefix .. 'k:' .. slot) end
remove(prefix .. 'kept')
remove(prefix .. 'journal')
return write_all('OK')
