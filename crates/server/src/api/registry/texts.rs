//! The words of the registry in English and Vietnamese: everything that a page shows of states, facets, colours and reasons,
//! by key.

use countersign_client::wire;
use countersign_kernel::lifecycle::{FacetRow, OwnMachine, RUN_STATES, STEP_FACETS, STEP_STATES};
use countersign_kernel::rollup::Colour;
use countersign_kernel::run::{BlockReason, CorrectionReason};
use std::collections::BTreeMap;

/// What is filled into a text that says which attempt it is.
const ATTEMPT: &str = "{attempt}/{max_attempts}";

fn texts(en: &str, vi: &str) -> wire::Texts {
    wire::Texts { en: en.to_owned(), vi: vi.to_owned() }
}

pub fn of_facet(row: &FacetRow) -> wire::Texts {
    texts(&row.label_en.replace("n/N", ATTEMPT), &row.label_vi.replace("n/N", ATTEMPT))
}

fn of_block_reason(reason: BlockReason) -> wire::Texts {
    match reason {
        BlockReason::MissingInput => texts("Input is missing", "Thiếu dữ liệu đầu vào"),
        BlockReason::MissingApproval => texts("An approval is missing", "Thiếu phê duyệt"),
        BlockReason::ConfigError => texts("The configuration is wrong", "Lỗi cấu hình"),
    }
}

fn of_correction_reason(reason: CorrectionReason) -> wire::Texts {
    match reason {
        CorrectionReason::DataError => texts("The data was wrong", "Sai dữ liệu"),
        CorrectionReason::PolicyChange => texts("The policy changed", "Thay đổi chính sách"),
        CorrectionReason::DownstreamDependencyFailed => {
            texts("A later step failed because of it", "Bước phụ thuộc phía sau thất bại")
        }
        CorrectionReason::RegulatoryRecall => {
            texts("A regulator recalled it", "Thu hồi theo yêu cầu của cơ quan quản lý")
        }
    }
}

pub fn vocabularies() -> Vec<wire::Vocabulary> {
    let word = |vocabulary: &str, code: &str, texts: wire::Texts| wire::VocabularyWord {
        code: code.to_owned(),
        label_key: format!("vocab.{vocabulary}.{code}"),
        texts,
    };
    let blocks = BlockReason::ALL.iter().map(|reason| word("block_reason", reason.as_str(), of_block_reason(*reason)));
    let corrections = CorrectionReason::ALL
        .iter()
        .map(|reason| word("correction_reason", reason.as_str(), of_correction_reason(*reason)));
    let results =
        [("completed", texts("It was done", "Đã thực hiện")), ("not_done", texts("It was not done", "Chưa thực hiện"))];
    let results = results.into_iter().map(|(code, texts)| word("result", code, texts)).collect();
    vec![
        wire::Vocabulary { vocabulary: "result".to_owned(), words: results },
        wire::Vocabulary { vocabulary: "block_reason".to_owned(), words: blocks.collect() },
        wire::Vocabulary { vocabulary: "correction_reason".to_owned(), words: corrections.collect() },
    ]
}

pub fn rollup_colors() -> Vec<wire::RollupColor> {
    let color = |colour: &Colour| {
        let (token, icon, texts) = match colour {
            Colour::Gray => ("ui.traffic_light.gray", "○", texts("Not started", "Chưa bắt đầu")),
            Colour::Green => ("ui.traffic_light.green", "►", texts("On track", "Đúng tiến độ")),
            Colour::Yellow => ("ui.traffic_light.yellow", "⏳", texts("Held up", "Đang bị giữ lại")),
            Colour::Red => ("ui.traffic_light.red", "✕", texts("Needs attention", "Cần xử lý")),
        };
        wire::RollupColor {
            state_code: colour.as_str().to_owned(),
            color_token: token.to_owned(),
            icon: icon.to_owned(),
            label_key: format!("rollup.{colour}.label"),
            texts,
        }
    };
    Colour::ALL.iter().map(color).collect()
}

/// Every text by its key, per language. `own` are the machines that were published; of a state with the same name the newest says
/// what it is called.
pub fn all<'m>(own: impl Iterator<Item = &'m OwnMachine>) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut all: Vec<(String, wire::Texts)> = vec![];
    for machine in own {
        for state in &machine.states {
            all.push((format!("state.{}.label", state.code), texts(&state.label_en, &state.label_vi)));
            all.push((format!("state.{}.short", state.code), texts(&state.short_en, &state.short_vi)));
        }
    }
    for def in STEP_STATES {
        all.push((format!("state.{}.label", def.text), texts(def.label, def.label_vi)));
        all.push((format!("state.{}.short", def.text), texts(def.short, def.short_vi)));
    }
    all.extend(RUN_STATES.iter().map(|def| (format!("run.{}.label", def.code), texts(def.label, def.label_vi))));
    all.extend(STEP_FACETS.iter().map(|row| (format!("facet.{}.label", row.facet), of_facet(row))));
    all.extend(rollup_colors().into_iter().map(|color| (color.label_key, color.texts)));
    all.extend(vocabularies().into_iter().flat_map(|list| list.words).map(|word| (word.label_key, word.texts)));
    all.extend(super::words::actions());
    all.extend(super::words::problems());
    all.extend(super::words::governance());
    let of =
        |text: fn(&wire::Texts) -> &String| all.iter().map(|(key, texts)| (key.clone(), text(texts).clone())).collect();
    BTreeMap::from([("en".to_owned(), of(|texts| &texts.en)), ("vi".to_owned(), of(|texts| &texts.vi))])
}
