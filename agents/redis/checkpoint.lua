-- After staging.lua and index.lua.
-- Write a partition's changes, only if they were folded from the stored offset, and no other worker has opened the
-- partition since.
-- KEYS  1 {name:p}:state, 2 journal, then the index of each slot with changes, the chunks to write, and those to delete
-- ARGV  1 base, 2 owner token, 3 the slots (msgpack): slot, end, cell -> users; 4 fields of the state (msgpack; false
--       deletes one), 5 6 number and bytes of a block of the journal ('' for none), 7 '1' to end the journal, then each
--       chunk (cmsgpack does not support msgpack's type for bytes)
-- Returns "OK", or the stored offset (nil if there is none): then nothing was written.
local stored = redis.call('HMGET', KEYS[1], 'offset', 'owner')
if stored[1] ~= ARGV[1] or stored[2] ~= ARGV[2] then return stored[1] end
local slots = cmsgpack.unpack(ARGV[3])
check_entries(KEYS[2], get_number(KEYS[1], 'journal'))
for i, slot in ipairs(slots) do
  check_slot(slot[1], KEYS[2 + i])
  for cell, users in pairs(slot[3]) do set(KEYS[2 + i], cell, users) end
end
local fields = cmsgpack.unpack(ARGV[4])
if fields.complete_from then
  -- Slots closed by the stored watermark are complete. Of several gaps the first one counts.
  local watermark = get(KEYS[1], 'clock')
  if watermark and not get(KEYS[1], 'complete_from') and not get(KEYS[1], 'lost_from') then
    set_number(KEYS[1], 'lost_from', parse_integer(watermark, KEYS[1]))
  end
end
for field, value in pairs(fields) do set(KEYS[1], field, value) end
if ARGV[5] ~= '' then set(KEYS[2], ARGV[5], ARGV[6]) end
if ARGV[7] == '1' then remove(KEYS[2]) end
local first = 3 + #slots
for i = first, #KEYS do
  local chunk = ARGV[8 + i - first]
  if chunk then set_string(KEYS[i], chunk) else remove(KEYS[i]) end
end
local answer = write_all('OK')
if answer == 'OK' then
  for i, slot in ipairs(slots) do
    redis.call('HSET', KEYS[1], 'slot:' .. slot[1], slot[2] .. ' ' .. redis.call('HLEN', KEYS[2 + i]))
  end
end
return answer
