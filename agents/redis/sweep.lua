-- After staging.lua.
-- Delete keys of a partition, and fields of its state. Its owner may not write it any more, since its memory has them.
-- KEYS  1 {name:p}:state, then the keys
-- ARGV  1 nonce of the index from which these keys follow, 2 the next one, then the fields
-- Returns "OK", or "moved" if the index has changed: then nothing was deleted.
if get(KEYS[1], 'nonce') ~= ARGV[1] then return write_all('moved') end
for i = 3, #ARGV do set(KEYS[1], ARGV[i], false) end
for i = 2, #KEYS do remove(KEYS[i]) end
set(KEYS[1], 'owner', false)
set(KEYS[1], 'nonce', ARGV[2])
return write_all('OK', true)
