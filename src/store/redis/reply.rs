//! The script's reply, read strictly: a shape that the script does not make is *malformed*, never an allow.

use redis::Value;

use crate::decision::algorithm::{Admission, Foreign, Role};
use crate::decision::verdict::{FailureClass, Taken};
use crate::store::StoreError;

/// The latest time that a store can tell, in microseconds: what its script counts exactly (the year 2255).
pub const MAX_STORE_US: i64 = (1 << 53) - 1;

/// What the script said. `lua/open.lua` documents the numbers.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Taken(Taken),
    /// Read after the deadline: nothing ran.
    Late,
    BadArguments,
    Foreign {
        charge: usize,
        foreign: Foreign,
    },
}

/// Decodes the reply for charges with these roles, and the store's time in microseconds.
pub fn decode(value: &Value, roles: impl ExactSizeIterator<Item = Role>) -> Result<(Reply, i64), StoreError> {
    let malformed = || StoreError::new(FailureClass::Malformed, "the reply is not of the script's shape");
    let Value::Array(items) = value else {
        return Err(malformed());
    };
    let number = |item: &Value| {
        if let Value::Int(number) = item { Ok(*number) } else { Err(malformed()) }
    };
    let numbers = items.iter().map(number).collect::<Result<Vec<i64>, _>>()?;
    let (&[code, store_us], rest) = numbers.split_first_chunk().ok_or_else(malformed)?;
    if !(1..=MAX_STORE_US).contains(&store_us) {
        return Err(malformed());
    }
    let reply = match u64::try_from(code) {
        Ok(admitted) => {
            let admissions = admissions(rest, admitted, roles).ok_or_else(malformed)?;
            Reply::Taken(Taken { admitted, admissions })
        }
        Err(_) => {
            let &[place] = rest else { return Err(malformed()) };
            failure(code, place, roles.len()).ok_or_else(malformed)?
        }
    };
    Ok((reply, store_us))
}

/// Three numbers a charge, and a fourth for a shadow charge: for how many requests it was charged.
fn admissions(numbers: &[i64], admitted: u64, roles: impl ExactSizeIterator<Item = Role>) -> Option<Vec<Admission>> {
    let mut numbers = numbers.iter();
    let mut admissions = Vec::with_capacity(roles.len());
    for role in roles {
        let mut next = || numbers.next().copied();
        let (remaining, retry, reset) = (next()?, next()?, next()?);
        admissions.push(Admission {
            charged: match role {
                Role::Enforced => admitted,
                Role::Shadow => u64::try_from(next()?).ok().filter(|charged| *charged <= admitted)?,
            },
            remaining: u64::try_from(remaining).ok()?,
            retry_after_ms: if retry == -1 { None } else { Some(u64::try_from(retry).ok()?) },
            reset_after_ms: u64::try_from(reset).ok()?,
        });
    }
    numbers.next().is_none().then_some(admissions)
}

fn failure(code: i64, place: i64, charges: usize) -> Option<Reply> {
    let foreign = match code {
        -1 => return Some(Reply::Late),
        -2 => return Some(Reply::BadArguments),
        -3 => Foreign::WrongType,
        -4 => Foreign::NoExpiry,
        -5 => Foreign::Malformed,
        -6 => Foreign::WrongExpiry,
        -7 => Foreign::AheadOfClock,
        _ => return None,
    };
    let charge = usize::try_from(place).ok()?.checked_sub(1)?;
    (charge < charges).then_some(Reply::Foreign { charge, foreign })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(numbers: &[i64]) -> Result<Reply, FailureClass> {
        let value = Value::Array(numbers.iter().map(|n| Value::Int(*n)).collect());
        decode(&value, [Role::Enforced].into_iter()).map(|(reply, _)| reply).map_err(|error| error.class)
    }

    #[test]
    fn every_reply_that_the_script_makes_is_read() {
        let admission =
            |charged, remaining, retry_after_ms| Admission { charged, remaining, retry_after_ms, reset_after_ms: 10 };
        let taken = |admitted, admission| Ok(Reply::Taken(Taken { admitted, admissions: vec![admission] }));
        assert_eq!(decoded(&[1, 7, 2, 0, 10]), taken(1, admission(1, 2, Some(0))));
        assert_eq!(decoded(&[0, 7, 0, 10, 10]), taken(0, admission(0, 0, Some(10))));
        assert_eq!(decoded(&[0, 7, 0, -1, 10]), taken(0, admission(0, 0, None)));
        assert_eq!(decoded(&[-1, 7, 0]), Ok(Reply::Late));
        assert_eq!(decoded(&[-2, 7, 1]), Ok(Reply::BadArguments));
        for (code, foreign) in (3..).zip(Foreign::ALL) {
            assert_eq!(decoded(&[-code, 7, 1]), Ok(Reply::Foreign { charge: 0, foreign }));
        }
    }

    #[test]
    fn a_shadow_charge_tells_for_how_many_it_was_charged() {
        let shadow = |numbers: &[i64]| {
            let value = Value::Array(numbers.iter().map(|n| Value::Int(*n)).collect());
            let decoded = decode(&value, [Role::Enforced, Role::Shadow].into_iter());
            decoded.map(|(reply, _)| match reply {
                Reply::Taken(taken) => taken.admissions[1].charged,
                _ => u64::MAX,
            })
        };
        assert_eq!(shadow(&[3, 7, 2, 0, 10, 0, 10, 10, 2]), Ok(2));
        assert!(shadow(&[3, 7, 2, 0, 10, 0, 10, 10, 4]).is_err(), "more than were admitted");
        assert!(shadow(&[3, 7, 2, 0, 10, 0, 10, 10]).is_err());
    }

    // RL-27: valid RESP of the wrong shape.
    #[test]
    fn any_other_shape_is_malformed() {
        for numbers in [
            &[][..],
            &[1],
            &[1, 7],
            &[1, 7, 2, 0],
            &[1, 7, 2, 0, 10, 3],
            &[1, 0, 2, 0, 10],
            &[1, i64::MAX, 2, 0, 10],
            &[1, 7, -1, 0, 10],
            &[1, 7, 2, -2, 10],
            &[1, 7, 2, 0, -1],
            &[-1, 7],
            &[-3, 7, 0],
            &[-3, 7, 2],
            &[-8, 7, 1],
        ] {
            assert_eq!(decoded(numbers), Err(FailureClass::Malformed), "{numbers:?}");
        }
        for value in [Value::Nil, Value::Okay, Value::Int(1), Value::Array(vec![Value::BulkString(b"1".to_vec())])] {
            assert_eq!(
                decode(&value, [Role::Enforced].into_iter()).map_err(|error| error.class),
                Err(FailureClass::Malformed)
            );
        }
    }
}
