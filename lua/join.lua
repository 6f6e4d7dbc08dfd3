-- Two short parts between the algorithms' parts.

--- before the checks
-- The deadline first: whoever asked has given up, so nothing may be counted any more.
if now > not_after then
  return {-1, now_us, 0}
end
local admitted = n -- each check lowers it to what fits its limit

--- after the checks
if admitted < 0 then
  admitted = 0 -- a lowered limit left less than no room
end
