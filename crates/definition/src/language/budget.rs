//! CEL has no limit on the cost of an evaluation, and a short expression can ask for too much: a list mapped onto
//! itself a dozen times, a text doubled again and again. So every place where an evaluation reads, repeats or grows
//! gets a call that charges the budget, and an evaluation that finds its budget used up is an error. A second call
//! sorts the keys of a map before a loop goes through them. A third matches patterns, which are compiled once if they
//! are constants.

use super::pattern::{self, Pattern};
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::{CelBool, CelBytes, CelInt, CelList, CelString, DYN_TYPE, MAP_TYPE, STRING_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// Steps for each part of an expression, each time that it is evaluated.
pub(super) const TURN: u64 = 32;
/// No expression can be written with an `@` in it.
const WEIGH: &str = "@weigh";
const EACH: &str = "@each";
const MATCHES: &str = "@matches";
/// Stands for the expression itself, in the error of one that exceeds its budget.
pub(super) const WHOLE: &str = "expression";

/// The patterns that an expression holds as constants.
pub(super) type Patterns = HashMap<String, Pattern>;

thread_local! {
    /// What is left to the evaluation that this thread is in.
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static PATTERNS: RefCell<Option<Arc<Patterns>>> = const { RefCell::new(None) };
}

/// Begins an evaluation on this thread.
pub(super) fn begin(left: u64, patterns: &Arc<Patterns>) {
    LEFT.set(left);
    PATTERNS.set(Some(patterns.clone()));
}

/// Ends it; what is left.
pub(super) fn end() -> u64 {
    PATTERNS.set(None);
    LEFT.get()
}

fn charge(steps: u64) -> Result<(), ExecutionError> {
    let left = LEFT.get().checked_sub(steps);
    LEFT.set(left.unwrap_or(0));
    left.map(|_| ()).ok_or_else(|| ExecutionError::function_error(WHOLE, ""))
}

pub(super) fn declare(env: &mut Env) {
    // Each is declared once, in an environment of its own; there is nothing it could collide with.
    let declared = env.add_overload(WEIGH, "weigh_dyn", vec![DYN_TYPE, DYN_TYPE], weigh);
    debug_assert!(declared.is_ok());
    let declared = env.add_overload(EACH, "each_dyn", vec![DYN_TYPE], each);
    debug_assert!(declared.is_ok());
    let declared = env.add_overload(MATCHES, "matches_strings", vec![STRING_TYPE, STRING_TYPE], matches);
    debug_assert!(declared.is_ok());
}

/// What a loop goes through: of a map its keys, in their order, for the map itself has none and the same question
/// must have the same answer.
fn each<'b, 'v>(mut arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = arguments.pop().ok_or_else(ExecutionError::missing_argument_or_target)?;
    if value.get_type().name() != MAP_TYPE.name() {
        return Ok(value);
    }
    let mut keys: Vec<Box<dyn Val + 'v>> = Vec::new();
    if let Some(iterable) = value.as_iterable() {
        let mut items = iterable.iter();
        while let Some(key) = items.next() {
            charge(TURN)?;
            keys.push(key.clone_as_boxed());
        }
    }
    keys.sort_by_cached_key(|key| match key.downcast_ref::<CelString<'_>>() {
        Some(text) => (true, text.inner().to_owned()),
        None => (false, format!("{key:?}")),
    });
    Ok(CowVal::owned(CelList::from(keys)))
}

/// Whether a text matches a pattern. A constant pattern was compiled with its expression; any other is compiled here, and
/// that is charged whatever may be at hand: the same expression costs the same each time.
fn matches<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [text, pattern] = arguments.as_slice() else { return Err(ExecutionError::missing_argument_or_target()) };
    let strings = text.downcast_ref::<CelString<'_>>().zip(pattern.downcast_ref::<CelString<'_>>());
    let (text, pattern) = strings.ok_or_else(ExecutionError::missing_argument_or_target)?;
    let constants = PATTERNS.with_borrow(Clone::clone);
    let matched = match constants.as_ref().and_then(|constants| constants.get(pattern.inner())) {
        Some(known) => {
            charge(known.weight.matching(text.inner().len()))?;
            known.regex.is_match(text.inner())
        }
        None => {
            let refused = |why: String| ExecutionError::function_error("matches", why);
            // Weighing reads the pattern, too.
            charge(TURN * (pattern.inner().len() as u64 + 1))?;
            let weight = pattern::weigh(pattern.inner()).map_err(refused)?;
            charge(weight.compiling.saturating_add(weight.matching(text.inner().len())))?;
            pattern::build(pattern.inner()).map_err(refused)?.is_match(text.inner())
        }
    };
    Ok(CowVal::owned(CelBool::from(matched)))
}

/// Charges for a value that passes, and for the parts of the expression that it comes from.
fn weigh<'b, 'v>(mut arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let parts = arguments.pop().ok_or_else(ExecutionError::missing_argument_or_target)?;
    let value = arguments.pop().ok_or_else(ExecutionError::missing_argument_or_target)?;
    let parts = parts.downcast_ref::<CelInt>().map_or(1, |parts| parts.inner().unsigned_abs());
    let mut left = LEFT.get().checked_sub(TURN * parts);
    subtract(value.as_ref(), &mut left);
    LEFT.set(left.unwrap_or(0));
    match left {
        Some(_) => Ok(value),
        None => Err(ExecutionError::function_error(WHOLE, "")),
    }
}

/// Takes the weight of a value; stops as soon as there is not enough left.
fn subtract(value: &dyn Val, left: &mut Option<u64>) {
    let Some(some) = *left else { return };
    let bytes = if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        text.inner().len()
    } else if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        bytes.inner().len()
    } else {
        0
    };
    *left = some.checked_sub(8 + bytes as u64);
    let Some(iterable) = value.as_iterable() else { return };
    let indexer = value.as_indexer();
    let is_map = value.get_type().name() == MAP_TYPE.name();
    let mut items = iterable.iter();
    while let (Some(_), Some(item)) = (*left, items.next()) {
        subtract(item, left);
        if let (true, Some(indexer)) = (is_map, indexer)
            && let Ok(found) = indexer.get(item)
        {
            subtract(found.as_ref(), left);
        }
    }
}

/// Puts the weighing calls into an expression; gives the patterns that it holds as constants.
pub(super) fn guard(node: &mut IdedExpr) -> Vec<String> {
    let mut patterns = Vec::new();
    visit(node, &mut patterns);
    patterns
}

/// How many parts an expression has.
pub(super) fn parts(node: &IdedExpr) -> u64 {
    1 + match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => 0,
        Expr::Select(select) => parts(&select.operand),
        Expr::List(list) => list.elements.iter().map(parts).sum(),
        Expr::Map(map) => map.entries.iter().map(|entry| parts_of_entry(&entry.expr)).sum(),
        Expr::Struct(message) => message.entries.iter().map(|entry| parts_of_entry(&entry.expr)).sum(),
        Expr::Call(call) => call.target.iter().map(|target| parts(target)).chain(call.args.iter().map(parts)).sum(),
        Expr::Comprehension(loops) => {
            let all = [&loops.iter_range, &loops.accu_init, &loops.loop_cond, &loops.loop_step, &loops.result];
            all.into_iter().map(parts).sum()
        }
    }
}

fn parts_of_entry(entry: &EntryExpr) -> u64 {
    match entry {
        EntryExpr::StructField(field) => parts(&field.value),
        EntryExpr::MapEntry(entry) => parts(&entry.key) + parts(&entry.value),
    }
}

type Found<'f> = &'f mut Vec<String>;

fn visit(node: &mut IdedExpr, found: Found<'_>) {
    if is_path(&node.expr) {
        visit_indices(node, found);
        wrap(node);
        return;
    }
    match &mut node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => visit_operand(&mut select.operand, found),
        Expr::List(list) => {
            list.elements.iter_mut().for_each(|element| visit(element, found));
            wrap(node);
        }
        Expr::Map(map) => {
            map.entries.iter_mut().for_each(|entry| visit_entry(&mut entry.expr, found));
            wrap(node);
        }
        Expr::Struct(message) => message.entries.iter_mut().for_each(|entry| visit_entry(&mut entry.expr, found)),
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                visit(target, found);
            }
            call.args.iter_mut().for_each(|argument| visit(argument, found));
            take_over_matches(call, found);
            // What makes something larger than what it was made of.
            if matches!(call.func_name.as_str(), operators::ADD | "string" | "bytes") {
                wrap(node);
            }
        }
        Expr::Comprehension(loops) => {
            let turn = parts(&loops.loop_step) + parts(&loops.loop_cond);
            visit(&mut loops.iter_range, found);
            call(EACH, &mut loops.iter_range, None);
            if !matches!(loops.loop_cond.expr, Expr::Literal(_)) {
                let mut tick = literal_true(&loops.loop_cond);
                call(WEIGH, &mut tick, Some(turn));
                let condition = std::mem::take(&mut loops.loop_cond);
                let call = CallExpr {
                    func_name: operators::LOGICAL_AND.to_owned(),
                    target: None,
                    args: vec![tick, condition],
                };
                loops.loop_cond = IdedExpr { id: loops.loop_step.id, expr: Expr::Call(call) };
            }
            visit_step(&mut loops.loop_step, found);
            if !matches!(loops.result.expr, Expr::Ident(_)) {
                visit_accumulating(&mut loops.result, found);
            }
        }
    }
}

/// `text.matches(pattern)` and `matches(text, pattern)` are ours.
fn take_over_matches(call: &mut CallExpr, found: Found<'_>) {
    if call.func_name != "matches" || call.args.len() + usize::from(call.target.is_some()) != 2 {
        return;
    }
    if let Some(target) = call.target.take() {
        call.args.insert(0, *target);
    }
    MATCHES.clone_into(&mut call.func_name);
    if let Some(Expr::Literal(LiteralValue::String(pattern))) = call.args.get(1).map(|argument| &argument.expr) {
        found.push(pattern.inner().to_owned());
    }
}

/// What a loop does at each turn. The interpreter knows `@result + [x]` by its shape and does it in place, so
/// that shape is kept and its parts are weighed instead.
fn visit_step(step: &mut IdedExpr, found: Found<'_>) {
    match &mut step.expr {
        Expr::Call(call) if call.func_name == operators::CONDITIONAL => {
            if let [condition, then, otherwise] = call.args.as_mut_slice() {
                visit(condition, found);
                wrap(condition);
                visit_step(then, found);
                visit_step(otherwise, found);
            }
        }
        Expr::Call(call) if call.args.first().is_some_and(is_accumulator) => {
            for argument in call.args.iter_mut().skip(1) {
                match &mut argument.expr {
                    Expr::List(list) => list.elements.iter_mut().for_each(|element| {
                        visit(element, found);
                        wrap(element);
                    }),
                    _ => visit(argument, found),
                }
            }
        }
        _ => visit_accumulating(step, found),
    }
}

/// A part that reads the accumulator, which is not weighed: that would make each turn as dear as all before.
fn visit_accumulating(node: &mut IdedExpr, found: Found<'_>) {
    match &mut node.expr {
        Expr::Ident(name) if name.starts_with('@') => {}
        Expr::Call(call) => call.args.iter_mut().for_each(|argument| visit_accumulating(argument, found)),
        _ => visit(node, found),
    }
}

fn visit_operand(operand: &mut IdedExpr, found: Found<'_>) {
    if is_path(&operand.expr) { visit_indices(operand, found) } else { visit(operand, found) }
}

/// The indices inside of a path, which may be anything.
fn visit_indices(node: &mut IdedExpr, found: Found<'_>) {
    match &mut node.expr {
        Expr::Select(select) => visit_indices(&mut select.operand, found),
        Expr::Call(call) => {
            if let [operand, index] = call.args.as_mut_slice() {
                visit_indices(operand, found);
                visit(index, found);
            }
        }
        _ => {}
    }
}

fn visit_entry(entry: &mut EntryExpr, found: Found<'_>) {
    match entry {
        EntryExpr::StructField(field) => visit(&mut field.value, found),
        EntryExpr::MapEntry(entry) => {
            visit(&mut entry.key, found);
            visit(&mut entry.value, found);
        }
    }
}

fn is_accumulator(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Ident(name) if name.starts_with('@'))
}

/// A name, and selections and indexings on it: `input.items[0].name`.
fn is_path(expr: &Expr) -> bool {
    match expr {
        Expr::Ident(name) => !name.starts_with('@'),
        Expr::Select(select) => !select.test && is_path(&select.operand.expr),
        Expr::Call(call) => {
            call.func_name == operators::INDEX && call.args.first().is_some_and(|operand| is_path(&operand.expr))
        }
        _ => false,
    }
}

fn wrap(node: &mut IdedExpr) {
    let parts = parts(node);
    call(WEIGH, node, Some(parts));
}

/// Puts a call of `function` around a part, with a number beside it.
fn call(function: &str, node: &mut IdedExpr, number: Option<u64>) {
    let inner = std::mem::take(node);
    let id = inner.id;
    let number = number.map(|number| {
        let number = CelInt::from(i64::try_from(number).unwrap_or(i64::MAX));
        IdedExpr { id, expr: Expr::Literal(LiteralValue::Int(number)) }
    });
    let args = std::iter::once(inner).chain(number).collect();
    let call = CallExpr { func_name: function.to_owned(), target: None, args };
    *node = IdedExpr { id, expr: Expr::Call(call) };
}

fn literal_true(like: &IdedExpr) -> IdedExpr {
    IdedExpr { id: like.id, expr: Expr::Literal(LiteralValue::Boolean(CelBool::from(true))) }
}
