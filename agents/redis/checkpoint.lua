-- Write a partition's changes, only if they were folded from the stored offset, and no other worker has opened the
-- partition since.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, base, next, owner token, changes (msgpack: clock, complete_from, outcomes, slots, hats, days,
--          days_over, ends_journal), number and bytes of a block of the journal ('' for none), then key and value of each
--          chunk (cmsgpack does not support msgpack's type for bytes)
-- Returns "OK", or the stored offset (nil if there is none): then nothing was written.
local stored = redis.call('HMGET', KEYS[1], 'offset', 'owner')
if stored[1] ~= ARGV[2] or stored[2] ~= ARGV[4] then return stored[1] end
local prefix, changes = ARGV[1], cmsgpack.unpack(ARGV[5])
set(KEYS[1], 'offset', ARGV[3])
if changes.complete_from then
  -- Slots closed by the stored watermark are complete. Of several gaps the first one counts.
  local watermark = get(KEYS[1], 'clock')
  if watermark and not get(KEYS[1], 'complete_from') and not get(KEYS[1], 'lost_from') then
    set_number(KEYS[1], 'lost_from', parse_integer(watermark, KEYS[1]))
  end
  set(KEYS[1], 'complete_from', changes.complete_from)
  set(KEYS[1], 'gap', false)
end
if changes.clock then set(KEYS[1], 'clock', changes.clock) end
for outcome, records in pairs(changes.outcomes) do set(prefix .. 'outcomes', outcome, records) end
for slot, ends in pairs(changes.slots) do set(prefix .. 'slots', slot, ends) end
for slot, cells in pairs(changes.hats) do
  for cell, users in pairs(cells) do set(prefix .. 'hats:' .. slot, cell, users) end
end
if changes.ends_journal then remove(prefix .. 'journal') end
if ARGV[6] ~= '' then set(prefix .. 'journal', ARGV[6], ARGV[7]) end
for i = 8, #ARGV, 2 do set_string(prefix .. ARGV[i], ARGV[i + 1]) end
for date, users in pairs(changes.days) do set(prefix .. 'days', date, users) end
for date, chunks in pairs(changes.days_over) do
  set(prefix .. 'days', date, false)
  for chunk = 0, tonumber(chunks) - 1 do remove(prefix .. 'd:' .. date .. '/' .. chunk) end
end
return write_all('OK')
