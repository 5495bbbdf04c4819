//! The frame of the OpenAPI document; its routes come from the router itself.

use super::problem::PROBLEM_JSON;
use super::session::COOKIE_NAME;
use countersign_client::wire::Problem;
use countersign_kernel::registry::scopes;
use std::collections::BTreeMap;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required, Response,
    ResponseBuilder, SecurityRequirement,
};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

const BEARER: &str = "bearer";
const SESSION: &str = "session";
/// The scopes that an operation asks for, as its description says; empty where it needs none.
const SCOPES: &str = "x-countersign-scopes";
/// What a signed request for an operation says (`spec/record.md`, 5.2): its `action`, and the path parameter that names the
/// `instance`. Absent where nothing is changed.
const STATEMENT: &str = "x-countersign-statement";
/// The schema of a problem as we send it.
const REFUSAL: &str = "Refusal";

/// Everything but the routes.
pub fn base() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Countersign")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "A durable workflow engine whose history is evidence. Every POST takes an optional `Idempotency-Key`; \
             every refusal is a problem (RFC 9457) whose `code` is stable.",
        ))
        .build();
    let known = format!("The actor's token. Scopes that an actor can be granted: {}.", scopes::ALL.join(", "));
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(known)).build();
    let counts = "Counts only with `Origin` equal to `console.origin`, or with `Sec-Fetch-Site: same-origin`.";
    let session = ApiKeyValue::with_description(COOKIE_NAME, counts);
    let mut schemas = Vec::new();
    Problem::schemas(&mut schemas);
    let components = ComponentsBuilder::new()
        .security_scheme(BEARER, SecurityScheme::Http(bearer))
        .security_scheme(SESSION, SecurityScheme::ApiKey(ApiKey::Cookie(session)))
        .schemas_from_iter(schemas)
        .schema(REFUSAL, Problem::schema())
        .build();
    OpenApiBuilder::new()
        .info(info)
        .components(Some(components))
        .security(Some([BEARER, SESSION].map(|scheme| SecurityRequirement::new(scheme, Vec::<String>::new()))))
        .build()
}

/// What holds for every route is said here, once: each answer has a description, each POST takes a key.
pub fn complete(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        let operations =
            [("get", &mut item.get), ("post", &mut item.post), ("put", &mut item.put), ("delete", &mut item.delete)];
        for (method, operation) in operations.into_iter().filter_map(|(m, operation)| Some((m, operation.as_mut()?))) {
            operation.operation_id = Some(operation_id(method, path));
            let said = [&operation.summary, &operation.description].map(|text| text.as_deref().unwrap_or_default());
            let scopes: Vec<&str> = scopes::ALL.iter().copied().filter(|scope| names(&said, scope)).collect();
            operation.extensions.get_or_insert_default().insert(SCOPES.to_owned(), scopes.into());
            if let Some(statement) = statement(method, path) {
                operation.extensions.get_or_insert_default().insert(STATEMENT.to_owned(), statement);
            }
            for (status, response) in &mut operation.responses.responses {
                if let RefOr::T(response) = response
                    && response.description.is_empty()
                {
                    let made = if status == "201" { "Made" } else { "Done" };
                    made.clone_into(&mut response.description);
                }
            }
        }
        let changing = [&mut item.post, &mut item.put].into_iter().filter_map(Option::as_mut);
        for changing in changing.filter(|_| !is_about_sessions(path)) {
            let key = ParameterBuilder::new()
                .name("Idempotency-Key")
                .parameter_in(ParameterIn::Header)
                .required(Required::False)
                .description(Some("The same key and body again return the first accepted answer; kept for 24 hours, for a claim while one \
                     of its leases stands"))
                .schema(Some(String::schema()))
                .build();
            changing.parameters.get_or_insert_default().push(RefOr::T(key));
        }
    }
}

/// From the client's table: what it signs is what is described.
fn statement(method: &str, path: &str) -> Option<serde_json::Value> {
    let (action, instance) = countersign_client::signed_template(&method.to_uppercase(), path)?;
    let mut said = serde_json::json!({"action": action});
    if let Some(instance) = instance {
        said["instance"] = instance.into();
    }
    Some(said)
}

/// Signing in is repeated by signing in again: there is nothing to return a second time.
fn is_about_sessions(path: &str) -> bool {
    path.starts_with("/v1/session")
}

/// A name that no other operation has: the method and the path, `{…}` as `by_…`.
fn operation_id(method: &str, path: &str) -> String {
    let segments = path.split('/').filter(|segment| !segment.is_empty() && *segment != "v1");
    let words = segments.map(|segment| match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
        Some(name) => format!("by_{name}"),
        None => segment.replace(['-', '.'], "_"),
    });
    std::iter::once(method.to_owned()).chain(words).collect::<Vec<_>>().join("_")
}

/// Whether the description of an operation says that it asks for this scope.
fn names(said: &[&str], scope: &str) -> bool {
    said.iter().any(|text| text.contains(&format!("`{scope}`")))
}

/// How any request may be refused.
pub struct Refused;

impl IntoResponses for Refused {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(REFUSAL))).build();
        let refused = ResponseBuilder::new().description("Refused; nothing was changed").content(PROBLEM_JSON, content);
        BTreeMap::from([("default".to_owned(), RefOr::T(refused.build()))])
    }
}
