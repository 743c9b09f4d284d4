-- Lift a day's ledger number to all that its policies have numbered.    [design 4, Proven]
-- A release may have been sent without its budget record, while commits with smaller numbers were lost unsent.
-- KEYS  1 ledger (of one domain and date)
local numbered = 0
for field, value in pairs(fields_of(KEYS[1])) do
  if string.sub(field, 1, 8) == 'commits:' then numbered = numbered + whole(value, KEYS[1]) end
end
if numbered > number(KEYS[1], 'sequence') then store(KEYS[1], 'sequence', numbered) end
return written('OK')
