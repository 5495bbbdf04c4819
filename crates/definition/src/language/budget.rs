//! CEL has no limit on what an evaluation costs, and a few words can ask for more than there is: a list mapped onto
//! itself a dozen times, a text doubled again and again. So every place where an evaluation repeats or grows gets a
//! call that weighs what passes through it, and a total beyond [`BUDGET`] is an error. A second call puts the keys
//! of a map in order, before a loop goes through them.

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::{CelBool, CelBytes, CelList, CelString, DYN_TYPE, MAP_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};
use std::cell::Cell;

/// What one evaluation may weigh: bytes that it copies or looks at again, and a little for each turn of a loop.
const BUDGET: u64 = 32 << 20;
/// One passing through.
const TURN: u64 = 64;
/// No expression can be written with an `@` in it.
const WEIGH: &str = "@weigh";
const EACH: &str = "@each";
/// Stands for the expression itself, in the error of one that exceeds its budget.
pub(super) const WHOLE: &str = "expression";

thread_local! {
    /// What is left of the evaluation that this thread is in.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// Begins an evaluation on this thread.
pub(super) fn refill() {
    LEFT.set(BUDGET);
}

pub(super) fn declare(env: &mut Env) {
    // It is declared once, in an environment of its own; there is nothing it could collide with.
    let declared = env.add_overload(WEIGH, "weigh_dyn", vec![DYN_TYPE], weigh);
    debug_assert!(declared.is_ok());
    let declared = env.add_overload(EACH, "each_dyn", vec![DYN_TYPE], each);
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
            keys.push(key.clone_as_boxed());
        }
    }
    keys.sort_by_cached_key(|key| match key.downcast_ref::<CelString<'_>>() {
        Some(text) => (true, text.inner().to_owned()),
        None => (false, format!("{key:?}")),
    });
    Ok(CowVal::owned(CelList::from(keys)))
}

fn weigh<'b, 'v>(mut arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = arguments.pop().ok_or_else(ExecutionError::missing_argument_or_target)?;
    let mut left = LEFT.get().checked_sub(TURN);
    subtract(value.as_ref(), &mut left);
    LEFT.set(left.unwrap_or(0));
    match left {
        Some(_) => Ok(value),
        None => Err(ExecutionError::function_error(WHOLE, "it takes too much time or memory")),
    }
}

/// Takes the weight of a value; stops as soon as there is not enough left.
fn subtract(value: &dyn Val, left: &mut Option<u64>) {
    let Some(some) = *left else { return };
    let own = if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        text.inner().len()
    } else if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        bytes.inner().len()
    } else {
        8
    };
    *left = some.checked_sub(own as u64);
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

/// Puts the weighing calls into an expression.
pub(super) fn guard(node: &mut IdedExpr) {
    visit(node, false);
}

fn visit(node: &mut IdedExpr, in_loop: bool) {
    if in_loop && is_path(&node.expr) {
        visit_indices(node);
        wrap(node);
        return;
    }
    match &mut node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => visit_operand(&mut select.operand, in_loop),
        Expr::List(list) => {
            list.elements.iter_mut().for_each(|element| visit(element, in_loop));
            wrap(node);
        }
        Expr::Map(map) => {
            map.entries.iter_mut().for_each(|entry| visit_entry(&mut entry.expr, in_loop));
            wrap(node);
        }
        Expr::Struct(message) => message.entries.iter_mut().for_each(|entry| visit_entry(&mut entry.expr, in_loop)),
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                visit(target, in_loop);
            }
            call.args.iter_mut().for_each(|argument| visit(argument, in_loop));
            // What makes something larger than what it was made of.
            if matches!(call.func_name.as_str(), operators::ADD | "string" | "bytes") {
                wrap(node);
            }
        }
        Expr::Comprehension(loops) => {
            visit(&mut loops.iter_range, in_loop);
            call(EACH, &mut loops.iter_range);
            if !matches!(loops.loop_cond.expr, Expr::Literal(_)) {
                let mut tick = literal_true(&loops.loop_cond);
                wrap(&mut tick);
                let condition = std::mem::take(&mut loops.loop_cond);
                let call = CallExpr {
                    func_name: operators::LOGICAL_AND.to_owned(),
                    target: None,
                    args: vec![tick, condition],
                };
                loops.loop_cond = IdedExpr { id: loops.loop_step.id, expr: Expr::Call(call) };
            }
            visit_step(&mut loops.loop_step);
            if !matches!(loops.result.expr, Expr::Ident(_)) {
                visit_accumulating(&mut loops.result);
            }
        }
    }
}

/// What a loop does at each turn. The interpreter knows `@result + [x]` by its shape and does it in place, so
/// that shape is kept and its parts are weighed instead.
fn visit_step(step: &mut IdedExpr) {
    match &mut step.expr {
        Expr::Call(call) if call.func_name == operators::CONDITIONAL => {
            if let [condition, then, otherwise] = call.args.as_mut_slice() {
                visit(condition, true);
                wrap(condition);
                visit_step(then);
                visit_step(otherwise);
            }
        }
        Expr::Call(call) if call.args.first().is_some_and(is_accumulator) => {
            for argument in call.args.iter_mut().skip(1) {
                match &mut argument.expr {
                    Expr::List(list) => list.elements.iter_mut().for_each(|element| {
                        visit(element, true);
                        wrap(element);
                    }),
                    _ => visit(argument, true),
                }
            }
        }
        _ => visit_accumulating(step),
    }
}

/// A part that reads the accumulator, which is not weighed: that would make each turn as dear as all before.
fn visit_accumulating(node: &mut IdedExpr) {
    match &mut node.expr {
        Expr::Ident(name) if name.starts_with('@') => {}
        Expr::Call(call) => call.args.iter_mut().for_each(visit_accumulating),
        _ => visit(node, true),
    }
}

fn visit_operand(operand: &mut IdedExpr, in_loop: bool) {
    if in_loop && is_path(&operand.expr) { visit_indices(operand) } else { visit(operand, in_loop) }
}

/// The indices inside of a path, which may be anything.
fn visit_indices(node: &mut IdedExpr) {
    match &mut node.expr {
        Expr::Select(select) => visit_indices(&mut select.operand),
        Expr::Call(call) => {
            if let [operand, index] = call.args.as_mut_slice() {
                visit_indices(operand);
                visit(index, true);
            }
        }
        _ => {}
    }
}

fn visit_entry(entry: &mut EntryExpr, in_loop: bool) {
    match entry {
        EntryExpr::StructField(field) => visit(&mut field.value, in_loop),
        EntryExpr::MapEntry(entry) => {
            visit(&mut entry.key, in_loop);
            visit(&mut entry.value, in_loop);
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
    call(WEIGH, node);
}

/// Puts a call of `function` around a part.
fn call(function: &str, node: &mut IdedExpr) {
    let inner = std::mem::take(node);
    let id = inner.id;
    let call = CallExpr { func_name: function.to_owned(), target: None, args: vec![inner] };
    *node = IdedExpr { id, expr: Expr::Call(call) };
}

fn literal_true(like: &IdedExpr) -> IdedExpr {
    IdedExpr { id: like.id, expr: Expr::Literal(LiteralValue::Boolean(CelBool::from(true))) }
}
