//! Explains why an expression has no value. The interpreter's own messages repeat whole values, in an order that
//! differs from time to time; the result of an expression must not differ.

use super::json::describe;
use cel::ExecutionError as Error;
use cel::Value;

pub(super) fn explain(error: &Error) -> String {
    let two = |a: &Value, b: &Value| format!("{} and {}", describe(a), describe(b));
    match error {
        Error::UnsupportedBinaryOperator(operator, a, b) => format!("there is no `{operator}` for {}", two(a, b)),
        Error::ValuesNotComparable(a, b) => format!("{} cannot be compared", two(a, b)),
        Error::UnsupportedIndex(index, value) => {
            format!("{} cannot be indexed with {}", describe(value), describe(index))
        }
        Error::UnsupportedTargetType { target } => format!("this does not go with {}", describe(target)),
        Error::NotSupportedAsMethod { method, target } => format!("there is no `{method}` of {}", describe(target)),
        Error::UnsupportedKeyType(key) => format!("{} cannot be a key", describe(key)),
        Error::DuplicateKey(_) => "a map has the same key twice".to_owned(),
        Error::DivisionByZero(_) | Error::RemainderByZero(_) => "a division by zero".to_owned(),
        Error::Overflow(operator, ..) => format!("the result of `{operator}` is beyond 64 bits"),
        Error::IndexOutOfBounds(_) => "an index beyond the end of its list".to_owned(),
        Error::NoSuchKey(key) => format!("there is no `{key}`"),
        Error::UndeclaredReference(name) => format!("there is no `{name}`"),
        Error::NoSuchOverload(overload) => {
            let function = overload.function().trim_start_matches('@');
            format!("there is no `{function}` for {}", overload.argument_types().join(" and "))
        }
        Error::FunctionError { function, .. } if function == super::budget::WHOLE => super::TOO_MUCH.to_owned(),
        Error::FunctionError { function, .. } => format!("`{function}` has no result for this"),
        Error::InvalidArgumentCount { expected, actual } => {
            format!("a function takes {expected} arguments and is given {actual}")
        }
        Error::UnexpectedType { got, want } => format!("here is {got} where {want} is needed"),
        _ => "it has no value".to_owned(),
    }
}
