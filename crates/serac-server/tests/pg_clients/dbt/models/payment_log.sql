{{ config(materialized="incremental", incremental_strategy="append") }}
select id, amount, loaded_at, {{ dbt.current_timestamp() }} as seen_at
from {{ source("raw", "payment") }}
{% if is_incremental() %}
where id > (select coalesce(max(id), 0) from {{ this }})
{% endif %}
