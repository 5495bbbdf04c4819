//! The names of actions and the titles of problems in English and Vietnamese.

use crate::pages::{self, INTERNAL_ERROR};
use countersign_client::wire;
use countersign_kernel::governance::Category;
use countersign_kernel::refusal::Code;

fn texts(en: &str, vi: &str) -> wire::Texts {
    wire::Texts { en: en.to_owned(), vi: vi.to_owned() }
}

/// What can be offered, by the key of its label: `action.<name>.label`.
const ACTIONS: &[(&str, &str, &str)] = &[
    ("approve", "Approve", "Phê duyệt"),
    ("block", "Block", "Chặn"),
    ("block-escalate", "Escalate the block", "Chuyển cấp việc bị chặn"),
    ("cancel", "Cancel", "Hủy"),
    ("cannot-complete", "Cannot be completed", "Không thể hoàn thành"),
    ("claim", "Claim", "Nhận việc"),
    ("complete", "Complete", "Hoàn thành"),
    ("declare-effect", "Declare what happened", "Khai báo điều đã xảy ra"),
    ("escalate", "Escalate", "Chuyển cấp"),
    ("extend-deadline", "Extend the deadline", "Gia hạn"),
    ("fire", "{action}", "{action}"),
    ("open-gate", "Ask for {action}", "Yêu cầu {action}"),
    ("pause", "Pause", "Tạm dừng"),
    ("reject", "Reject", "Từ chối"),
    ("release", "Release", "Trả việc"),
    ("reopen", "Reopen", "Mở lại"),
    ("resume", "Resume", "Chạy tiếp"),
    ("retry", "Retry", "Thử lại"),
    ("stop", "Stop", "Dừng"),
    ("transition", "Move to {state}", "Chuyển sang {state}"),
    ("unblock", "Unblock", "Bỏ chặn"),
    ("re-engage", "Re-engage", "Tiếp tục bước trễ hạn"),
    ("void", "Void", "Vô hiệu hóa"),
    ("wait", "Wait", "Chờ"),
    ("withdraw", "Withdraw", "Rút lại"),
];

pub fn actions() -> impl Iterator<Item = (String, wire::Texts)> {
    ACTIONS.iter().map(|(name, en, vi)| (format!("action.{name}.label"), texts(en, vi)))
}

/// The titles of problems, by code: `problem.<code>.title`.
pub fn problems() -> impl Iterator<Item = (String, wire::Texts)> {
    let codes = Code::ALL.iter().map(|code| (code.as_str(), pages::summary(*code), of_problem(*code)));
    let internal = pages::find(INTERNAL_ERROR).map_or("", |(_, page)| pages::summary_of(page));
    codes
        .chain([(INTERNAL_ERROR, internal, "Máy chủ gặp lỗi không xác định.")])
        .map(|(code, en, vi)| (format!("problem.{code}.title"), texts(en, vi)))
}

/// What the board of problems says of a category: `governance.<category>.open` and `.resolved`.
pub fn governance() -> impl Iterator<Item = (String, wire::Texts)> {
    Category::ALL.iter().flat_map(|category| {
        let (en, vi) = of_category(*category);
        let open = texts(&format!("{en}: {{count}}"), &format!("{vi}: {{count}}"));
        let resolved = texts(&format!("{en}: none is open"), &format!("{vi}: không còn vấn đề nào đang mở"));
        [(format!("governance.{category}.open"), open), (format!("governance.{category}.resolved"), resolved)]
    })
}

const fn of_category(category: Category) -> (&'static str, &'static str) {
    match category {
        Category::Dlq => ("Dead letters", "Thư chết"),
        Category::SilentWorkers => ("Silent worker classes", "Tiến trình im lặng"),
        Category::OverdueSteps => ("Overdue steps", "Bước quá hạn"),
        Category::SchemaViolations => ("Schema violations", "Dữ liệu sai lược đồ"),
        Category::EventLag => ("Event lag", "Sự kiện bị trễ"),
        Category::IntegrityWarnings => ("Integrity warnings", "Cảnh báo toàn vẹn"),
        Category::FailedRuns => ("Failed runs", "Lượt chạy thất bại"),
        Category::OrphanRuns => ("Orphan runs", "Lượt chạy bị bỏ rơi"),
    }
}

const fn of_problem(code: Code) -> &'static str {
    match code {
        Code::InvalidRequest => "Yêu cầu sai dạng: giá trị trống, trường lạ hoặc sai kiểu.",
        Code::InvalidQuery => "Truy vấn có bộ lọc lạ, giá trị trống hoặc khoảng thời gian đảo ngược.",
        Code::InvalidDeclaration => "Khai báo quy trình tự mâu thuẫn.",
        Code::InvalidDefinition => "Không thể công bố định nghĩa này như hiện tại.",
        Code::InvalidCredential => "Không có thông tin xác thực, hoặc thông tin đó không thuộc về ai.",
        Code::PermissionDenied => "Tác nhân không có quyền đang hiệu lực mà thao tác này cần.",
        Code::Unauthorized => "Tác nhân không phải là người mà cổng hoặc bước này chỉ định.",
        Code::NotKnown => "Không có đối tượng này.",
        Code::Terminal => "Quy trình đã kết thúc; không thể chuyển trạng thái nữa.",
        Code::InvalidTransition => "Khai báo không có chuyển tiếp này từ trạng thái hiện tại.",
        Code::NotGuarded => "Chuyển tiếp này không cần cổng: hãy thực hiện trực tiếp.",
        Code::GateNotAvailable => "Không thể mở cổng ở đây: đã kết thúc, hoặc không có gì để phê duyệt.",
        Code::AlreadyOpen => "Chuyển tiếp này đã gắn với một cổng chưa được dùng.",
        Code::GateNotOpen => "Chưa mở cổng nào cho chuyển tiếp này.",
        Code::GateNotCleared => "Phê duyệt của cổng còn thiếu, chưa quyết định, bị từ chối hoặc đã dùng.",
        Code::NotPending => "Bước phê duyệt hoặc chuỗi phê duyệt đã được quyết định.",
        Code::NotActive => "Quyền hoặc phân công đã hết hiệu lực.",
        Code::AlreadyReleased => "Lệnh giữ pháp lý đã được gỡ.",
        Code::NotEligible => "Bản ghi không được phép xóa, lúc này hoặc mãi mãi.",
        Code::UnderLegalHold => "Lệnh giữ pháp lý ngăn việc xóa bản ghi.",
        Code::LeaseLost => "Bước này không còn thuộc về người gọi.",
        Code::AlreadyTerminal => "Lần chạy đã kết thúc.",
        Code::TransitionRefusedByGuard => "Một điều kiện của vòng đời từ chối thao tác này.",
        Code::Conflict => "Khóa hoặc tên này đã được dùng cho việc khác.",
        Code::NothingToSeal => "Mọi bản ghi đều đã nằm dưới một điểm kiểm tra.",
        Code::TooLarge => "Yêu cầu lớn hơn mức máy chủ chấp nhận.",
        Code::Overloaded => "Đang có nhiều việc hơn khả năng của máy chủ; hãy thử lại.",
        Code::RecordingFailure => "Không ghi được thao tác, nên thao tác đã không xảy ra.",
    }
}
