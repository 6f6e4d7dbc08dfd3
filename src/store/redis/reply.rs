//! The script's reply, read strictly: a shape that the script does not make is *malformed*, never an allow.

use redis::Value;

use crate::decision::algorithm::{Admission, Foreign};
use crate::decision::verdict::{FailureClass, Taken};
use crate::store::StoreError;

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

/// Decodes the reply for `charges` charges, and the store's time in microseconds.
pub fn decode(value: &Value, charges: usize) -> Result<(Reply, i64), StoreError> {
    let malformed = || StoreError::new(FailureClass::Malformed, "the reply is not of the script's shape");
    let Value::Array(items) = value else {
        return Err(malformed());
    };
    let number = |item: &Value| {
        if let Value::Int(number) = item { Ok(*number) } else { Err(malformed()) }
    };
    let numbers = items.iter().map(number).collect::<Result<Vec<i64>, _>>()?;
    let (&[code, store_us], rest) = numbers.split_first_chunk().ok_or_else(malformed)?;
    if store_us <= 0 {
        return Err(malformed());
    }
    let reply = match u64::try_from(code) {
        Ok(admitted) if rest.len() == 3 * charges => {
            let admissions = rest.chunks_exact(3).map(admission).collect::<Option<_>>().ok_or_else(malformed)?;
            Reply::Taken(Taken { admitted, admissions })
        }
        Ok(_) => return Err(malformed()),
        Err(_) => {
            let &[place] = rest else {
                return Err(malformed());
            };
            failure(code, place, charges).ok_or_else(malformed)?
        }
    };
    Ok((reply, store_us))
}

fn admission(fields: &[i64]) -> Option<Admission> {
    let &[remaining, retry_after_ms, reset_after_ms] = fields else {
        return None;
    };
    let retry_after_ms = if retry_after_ms == -1 { None } else { Some(u64::try_from(retry_after_ms).ok()?) };
    let remaining = u64::try_from(remaining).ok()?;
    Some(Admission { remaining, retry_after_ms, reset_after_ms: u64::try_from(reset_after_ms).ok()? })
}

fn failure(code: i64, place: i64, charges: usize) -> Option<Reply> {
    let foreign = match code {
        -1 => return Some(Reply::Late),
        -2 => return Some(Reply::BadArguments),
        -3 => Foreign::WrongType,
        -4 => Foreign::NoExpiry,
        -5 => Foreign::Malformed,
        -6 => Foreign::ExpiryTooFar,
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
        decode(&value, 1).map(|(reply, _)| reply).map_err(|error| error.class)
    }

    #[test]
    fn every_reply_that_the_script_makes_is_read() {
        let admission = |remaining, retry_after_ms| Admission { remaining, retry_after_ms, reset_after_ms: 10 };
        let taken = |admitted, admission| Ok(Reply::Taken(Taken { admitted, admissions: vec![admission] }));
        assert_eq!(decoded(&[1, 7, 2, 0, 10]), taken(1, admission(2, Some(0))));
        assert_eq!(decoded(&[0, 7, 0, 10, 10]), taken(0, admission(0, Some(10))));
        assert_eq!(decoded(&[0, 7, 0, -1, 10]), taken(0, admission(0, None)));
        assert_eq!(decoded(&[-1, 7, 0]), Ok(Reply::Late));
        assert_eq!(decoded(&[-2, 7, 1]), Ok(Reply::BadArguments));
        for (code, foreign) in (3..).zip(Foreign::ALL) {
            assert_eq!(decoded(&[-code, 7, 1]), Ok(Reply::Foreign { charge: 0, foreign }));
        }
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
            assert_eq!(decode(&value, 1).map_err(|error| error.class), Err(FailureClass::Malformed));
        }
    }
}
