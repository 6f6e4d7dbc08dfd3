-- Short parts between the algorithms' parts.

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

--- after the checks, shadow
-- How many of the admitted requests a shadow limit has room for.
local charged_$N = fits_$N < admitted and fits_$N or admitted
if charged_$N < 0 then charged_$N = 0 end
