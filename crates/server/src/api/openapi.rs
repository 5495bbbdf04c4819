//! The frame of the OpenAPI document; its routes come from the router itself.

use super::problem::PROBLEM_JSON;
use countersign_client::wire::Problem;
use std::collections::BTreeMap;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required, Response,
    ResponseBuilder, SecurityRequirement,
};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

const BEARER: &str = "bearer";
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
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("The actor's token")).build();
    let mut schemas = Vec::new();
    Problem::schemas(&mut schemas);
    let components = ComponentsBuilder::new()
        .security_scheme(BEARER, SecurityScheme::Http(bearer))
        .schemas_from_iter(schemas)
        .schema(REFUSAL, Problem::schema())
        .build();
    OpenApiBuilder::new()
        .info(info)
        .components(Some(components))
        .security(Some([SecurityRequirement::new(BEARER, Vec::<String>::new())]))
        .build()
}

/// What holds for every route is said here, once: each answer has a description, each POST takes a key.
pub fn complete(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.post];
        for operation in operations.into_iter().flatten() {
            for (status, response) in &mut operation.responses.responses {
                if let RefOr::T(response) = response
                    && response.description.is_empty()
                {
                    let made = if status == "201" { "Made" } else { "Done" };
                    made.clone_into(&mut response.description);
                }
            }
        }
        if let Some(post) = &mut item.post {
            let key = ParameterBuilder::new()
                .name("Idempotency-Key")
                .parameter_in(ParameterIn::Header)
                .required(Required::False)
                .description(Some("The same key and body again return the first accepted answer; kept for 24 hours, for a claim while one \
                     of its leases stands"))
                .schema(Some(String::schema()))
                .build();
            post.parameters.get_or_insert_default().push(RefOr::T(key));
        }
    }
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
